"""Adders as MLflow's models: logged models of runs, and versions of registered models with aliases."""
