// SPDX-License-Identifier: Apache-2.0

package rest

// StatusFilter is the query parameter status_filter of lists, for statuses of one type.
type StatusFilter[S ~string] struct {
	Statuses []S `query:"status_filter,explode" maxItems:"6" doc:"Only items with this status. Repeat the parameter for several statuses."`
}

// StatusesOf returns the statuses of a filter in the type of the store. It returns none if every status matches.
func StatusesOf[T, S ~string](in StatusFilter[S]) (statuses []T) {
	for _, status := range in.Statuses {
		statuses = append(statuses, T(status))
	}
	return statuses
}
