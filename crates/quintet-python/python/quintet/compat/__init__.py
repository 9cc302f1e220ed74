"""Modules with the interfaces of other packages, on Quintet."""
