"""The HTTP API and the pages. They call the service; of the store they use only its records and errors."""
