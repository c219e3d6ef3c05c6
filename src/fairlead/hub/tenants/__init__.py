"""Members at the hub: their Tenant objects, their health, and what is allocated to them."""
