"""Between the plain data of the API and the messages of imp.v1."""
