"""The demo: the product's main flow on this machine, through its public doors only."""
