"""Hessian, Gauss-Newton and the quadratic model of a trained theta."""
