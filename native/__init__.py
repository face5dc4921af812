"""Kernels: arrays in, arrays and integers out. The only package that imports numba."""
