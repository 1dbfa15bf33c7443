"""The families. Every package in this folder is one: a subclass of `Spec` whose `family` is the package's name.

They are discovered here, so a new family is its package, its plain copy in `model/submissions` and its presets.
A family's __init__.py and spec.py must not import torch (`adder-search models` lists families without it);
`Spec` imports forward.py, initial.py, folds.py and probes.py on first use.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
