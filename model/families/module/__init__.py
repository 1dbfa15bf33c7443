from model.families.module.spec import Module as Module
from model.families.module.spec import Untrusted as Untrusted
from model.families.module.spec import load_module as load_module
