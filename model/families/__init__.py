"""The families. Every module or package in this folder is one: a subclass of `Spec` that is named like it.

They are found by themselves, so a new family is its file here, its plain copy in `model/submissions` and its
rungs. What is imported here must not import torch (`adder-search models` lists families without it): forward
passes, initial values and folds are imported by the methods that call them.
"""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
