"""The facts that `drld.doctor` judges, as this host and its daemon show them."""
