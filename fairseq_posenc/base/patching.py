"""Ways to change the names that a module of fairseq sees."""

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class ModuleProxy(types.ModuleType):
    """A module with some names replaced or added, for the namespace of a single importer."""

    def __init__(self, module: types.ModuleType, **names: Any) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def wrap(owner: Any, name: str) -> Callable[[Callable], Callable]:
    """Decorator that replaces ``owner.name`` by a function, which gets the original as its first argument."""

    def decorate(function: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, wrapped)
        return function

    return decorate


@contextmanager
def replaced(module: dict[str, Any], **names: Any) -> Iterator[None]:
    """In this context, the module with these globals, or the object with these attributes, has other values for ``names``."""
    before = {name: module[name] for name in names}
    module.update(names)
    try:
        yield
    finally:
        module.update(before)
