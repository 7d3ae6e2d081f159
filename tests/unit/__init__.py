"""One test module per PURE module, in the same folders as in src."""
