"""The research notebook: experiments, certificates, the papers' claims. It imports the product, not the reverse."""
