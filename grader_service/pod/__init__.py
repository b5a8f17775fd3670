"""Programs of a grading pod: one pod for all hidden tests of a verdict.

``prepare``  fetches what is laid into the pod, with a token that is good for this, and proves that the network is shut
``runner``   runs hidden tests, joined with its subject, and delivers their report
``join``     the first process of a subject's container, beside the agent's work: laid there as a file, standard library only

The subject's container holds no token and sees nothing hidden. It can reach the grader's port for grading pods, as all containers of a pod
share its network; without a token nothing is to be had there.
"""
