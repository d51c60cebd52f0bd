"""Showing results."""
