"""What do Kubernetes objects look like? Schemas, and the walks over an object that follow one."""
