"""A fork-server sandbox for programs that a model wrote."""
