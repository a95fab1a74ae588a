"""The study of one workload on a host: baselines, explore, race, minimise, confirm; resumable."""
