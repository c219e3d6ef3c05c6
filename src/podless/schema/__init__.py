"""Schemas of Kubernetes objects, and the walks over an object that follow one."""
