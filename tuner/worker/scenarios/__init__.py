"""How load is offered to the model, one file per scenario."""
