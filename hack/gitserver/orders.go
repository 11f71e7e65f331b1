// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
)

// order is an order of the shop in docs/first-agent.md and in the examples.
type order struct {
	Order    string   `json:"order"`
	State    string   `json:"state"`
	Carrier  string   `json:"carrier"`
	Shipment shipment `json:"shipment"`

	payments []payment
}

// shipment is the delivery of an order.
type shipment struct {
	Carrier string `json:"carrier"`
	ETA     string `json:"eta"`
}

// payment is a payment of an order.
type payment struct {
	Amount int    `json:"amount"`
	State  string `json:"state"`
}

var orders = map[string]order{
	"4711": {"4711", "shipped", "DHL", shipment{"DHL", "tomorrow"}, []payment{{20, "paid"}, {20, "paid"}}},
	"4712": {"4712", "packed", "UPS", shipment{"UPS", "next week"}, []payment{{35, "paid"}}},
}

// serveOrders adds the routes of orders.
func serveOrders(routes *http.ServeMux) {
	routes.HandleFunc("GET /orders/{order}", func(w http.ResponseWriter, req *http.Request) {
		writeOrder(w, req, func(o order) any { return o })
	})
	routes.HandleFunc("GET /orders/{order}/payments", func(w http.ResponseWriter, req *http.Request) {
		writeOrder(w, req, func(o order) any { return map[string]any{"payments": o.payments} })
	})
}

// writeOrder writes a part of the order that a request names.
func writeOrder(w http.ResponseWriter, req *http.Request, part func(o order) any) {
	found, known := orders[req.PathValue("order")]
	if !known {
		http.Error(w, "there is no such order", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(part(found)) // the client may have disconnected
}
