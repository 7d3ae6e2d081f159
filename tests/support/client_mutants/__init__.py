"""Our client with exactly one rule broken, at least one mutant for each duty. Holds no test.

Each mutant still works as a client: it fails only its own duty. This shows that the check of this
duty detects something, and that the other checks do not depend on it.
"""

from tests.support.client_mutants import holding, talking
from tests.support.client_mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "holding", "talking"]
