"""What values the fields of requests may have, whatever form the request has."""
