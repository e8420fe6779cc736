"""The parts of tools/demo.py: Python's standard library only."""
