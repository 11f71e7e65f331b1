// SPDX-License-Identifier: Apache-2.0

// Package rbac tests what the manifests let people and programs do: the roles
// of config/rbac, their bindings in each installation, and the admission policies of
// config/admission.
package rbac
