// The inverse root of a symmetric matrix, for L seeds at once: Jacobi's rotations, in double.
//
// No vendor's library, so the same bits on every CPU. A rotation is left out where there is nothing to turn, and the
// sweeps end when no lane has turned anything: so a lane's result does not depend on the others.
#pragma once

#include <cmath>
#include <vector>

constexpr int SWEEPS = 30;  // ten are enough for a matrix; what is not finite never is

// Each entry and number is L floats, a seed a lane: matrix, root [size][size]; damping, epsilon.
template <int L>
void inverse_root(const float* matrix, float* root, const float* damping, const float* epsilon, int size) {
    typedef double D[L];
    std::vector<double> values((size_t)size * size * L), vectors((size_t)size * size * L);
    D* a = (D*)values.data();
    D* v = (D*)vectors.data();
    D least, added;
    for (int n = 0; n < size * size; n++)
        for (int l = 0; l < L; l++) a[n][l] = matrix[n * L + l], v[n][l] = n % (size + 1) == 0;
    for (int l = 0; l < L; l++) least[l] = added[l] = 0;
    for (int i = 0; i < size; i++)
        for (int l = 0; l < L; l++) added[l] += a[i * size + i][l];
    for (int l = 0; l < L; l++) {
        least[l] = 1e-18 * std::fabs(added[l]);
        added[l] = damping[l] * (added[l] / size) + (double)epsilon[l] * epsilon[l];
    }
    bool turned = true;
    for (int sweep = 0; turned && sweep < SWEEPS; sweep++) {
        turned = false;
        for (int p = 0; p < size; p++)
            for (int q = p + 1; q < size; q++) {
                D c, s;
                bool any = false;
                for (int l = 0; l < L; l++) {
                    const double off = a[p * size + q][l];
                    const bool turns = std::fabs(off) > least[l];
                    const double half = (a[q * size + q][l] - a[p * size + p][l]) / (2 * (turns ? off : 1.0));
                    const double t = (half < 0 ? -1.0 : 1.0) / (std::fabs(half) + std::sqrt(half * half + 1));
                    c[l] = turns ? 1 / std::sqrt(t * t + 1) : 1.0;
                    s[l] = turns ? t * c[l] : 0.0;
                    any |= turns;
                }
                if (!any) continue;
                turned = true;
                for (int k = 0; k < size; k++) {  // columns p and q, then rows, then the vectors' columns
                    double *x = a[k * size + p], *y = a[k * size + q];
                    for (int l = 0; l < L; l++) {
                        const double m = c[l] * x[l] - s[l] * y[l], n = s[l] * x[l] + c[l] * y[l];
                        x[l] = m, y[l] = n;
                    }
                }
                for (int k = 0; k < size; k++) {
                    double *x = a[p * size + k], *y = a[q * size + k];
                    double *g = v[k * size + p], *h = v[k * size + q];
                    for (int l = 0; l < L; l++) {
                        const double m = c[l] * x[l] - s[l] * y[l], n = s[l] * x[l] + c[l] * y[l];
                        const double o = c[l] * g[l] - s[l] * h[l], r = s[l] * g[l] + c[l] * h[l];
                        x[l] = m, y[l] = n, g[l] = o, h[l] = r;
                    }
                }
            }
    }
    for (int i = 0; i < size; i++)  // what each eigenvalue becomes, on the diagonal
        for (int l = 0; l < L; l++) {
            const double value = a[i * size + i][l];
            a[i * size + i][l] = 1 / std::sqrt((value < 0 ? 0.0 : value) + added[l]);
        }
    for (int i = 0; i < size; i++)
        for (int j = 0; j <= i; j++) {
            D sum;
            for (int l = 0; l < L; l++) sum[l] = 0;
            for (int k = 0; k < size; k++)
                for (int l = 0; l < L; l++)
                    sum[l] += v[i * size + k][l] * a[k * size + k][l] * v[j * size + k][l];
            for (int l = 0; l < L; l++)
                root[(i * size + j) * L + l] = root[(j * size + i) * L + l] = (float)sum[l];
        }
}
