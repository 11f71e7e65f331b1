// SPDX-License-Identifier: Apache-2.0

package runrow

// LinkOrder orders links l, oldest first.
const LinkOrder = `l.object_created_at, l.id`
