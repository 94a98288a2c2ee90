"""ROS node ``supervisor``: joins the gate's logic to topics, services and the arm's action: scenes in, permits out."""
