"""Events, answers and tables as a person reads them."""
