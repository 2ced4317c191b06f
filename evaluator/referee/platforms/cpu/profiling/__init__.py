"""The referee's mode `profile`: where a candidate's time goes. It is never part of a verdict."""
