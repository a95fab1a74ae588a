"""Which configuration to try next: Optuna's storage and samplers, over canonical configurations."""
