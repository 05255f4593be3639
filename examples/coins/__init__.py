"""Coin prices: what a coin was sold for, collected from several marketplaces and made into one valuation."""
