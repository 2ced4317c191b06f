"""Views: the values that pages show, read from the store and ready for templates."""
