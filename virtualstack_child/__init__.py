"""What runs in a child process of virtualstack: the loop that serves its parent, and libraries that may crash or hang.

A package beside virtualstack, not in it: the child starts in a fifth of the time without the imports of the whole
package. Modules here import nothing of virtualstack.
"""
