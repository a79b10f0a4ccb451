"""Requests for generations: what the APIs share in reading their bodies."""
