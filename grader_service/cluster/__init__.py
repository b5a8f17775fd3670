"""Places on a cluster: limited children in the checker beside this service, hidden tests in pods of the namespace for grading.

``checker``  asks the checker
"""
