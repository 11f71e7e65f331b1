// SPDX-License-Identifier: Apache-2.0

// Package secrets holds the platform's keys, derives the secrets that the platform generates, and seals
// the credentials that it stores.
//
// One Secret of the system namespace contains two rings: derivation keys for generated secrets, and
// sealing keys for stored credentials. A ring has several keys, so that one can replace another while
// both are in use. The ring does not select the key for new values. The store selects it when all
// processes have the key.
//
// A derived secret is a pure function of a derivation key, the IDs of project and connector, a purpose
// and a version. So it survives the loss of everything except the key: a re-creation, a restored backup,
// a move to another cluster. A rotation uses another version.
package secrets
