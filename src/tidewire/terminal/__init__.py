"""The chat in the terminal, and the commands for scripts. Textual for widgets, the client for all
else; what a line looks like is decided in PURE modules.
"""
