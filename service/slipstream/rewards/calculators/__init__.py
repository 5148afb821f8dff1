"""The reward calculators, one or a few related ones a module.

A calculator needs its module here, with `@calculator("name")` on the class of its parameters, and its section in
`docs/rewards.md`. Every module of this folder is imported, so nothing else has to name it.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
