"""The study of one workload on this host: baselines, explore, race, minimise, confirm; resumable."""
