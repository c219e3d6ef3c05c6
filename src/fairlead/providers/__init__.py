"""The load balancers that Fairlead can run or drive, one file or package each.

In: ``model.contract.Provider``. Nothing here knows what the desired state is made of, and no provider knows another.
"""
