"""The deep agent: an ensemble of networks as the posterior, a critic for each, and a network for the variance of values."""
