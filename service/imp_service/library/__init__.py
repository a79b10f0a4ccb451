"""`imp_service.load`: names a model as the command line does, downloads it, and loads it with settings as keywords."""
