"""The family `module`: any nn.Module of a user's file or package. A package of its own, found by its entry point.

`load_module` makes a spec of one. `own_modules.tapes` trains it by the engine.
"""

from own_modules.spec import load_module as load_module
