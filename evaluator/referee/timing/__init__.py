"""How fast a candidate is: paired calls in process sets, their statistics, spot checks among them, and the roofline."""
