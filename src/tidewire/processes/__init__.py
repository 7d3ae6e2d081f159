"""Several processes of one server: the links between the store process and its gateways."""
