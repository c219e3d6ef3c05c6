"""Services that this member shares with the other members of its cluster set, by the Multi-Cluster Services API."""
