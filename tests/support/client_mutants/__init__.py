"""Our client with exactly one rule broken, one mutant a duty. Holds no test.

Each mutant still works as a client: only its own duty is not done. That is what shows that the
check of this duty sees something, and that the other checks do not lean on it.
"""

from tests.support.client_mutants import holding, talking
from tests.support.client_mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "holding", "talking"]
