"""imp.v1, imp's own API: a servicer for each service."""
