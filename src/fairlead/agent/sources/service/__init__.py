"""Services of type LoadBalancer, and NodePort Services with the annotation, as a source of the agent."""
