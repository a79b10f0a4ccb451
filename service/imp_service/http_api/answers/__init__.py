"""Answers to requests for generations: what the APIs share in running them and in sending their replies."""
